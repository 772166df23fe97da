"""The commands of `python -m tracing`, a module each: `add_to` adds its arguments to the parser, `run` runs it and
returns the exit status (None for 0). What a command shows is made elsewhere."""
