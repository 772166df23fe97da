"""The exercises, one a module: what is asked, the hints, and the grader."""
