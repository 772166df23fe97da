"""The course: notebooks to read and run, and the exercises that belong to them (notebooks.exercises)."""
