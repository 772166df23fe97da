"""Print a wrong answer: python -m tests.exercises.wrong 07 no_buffer"""

import sys

from notebooks.exercises.exercise import exercise
from tests.exercises.wrong.edits import wrong_answers

number, name = sys.argv[1:]
print(wrong_answers()[number][name].text(exercise(number)), end="")
