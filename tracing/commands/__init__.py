"""The commands of `python -m tracing`, by what they are for. Each has a function that adds its arguments to the parser
and one that runs it; what it shows is made elsewhere."""
