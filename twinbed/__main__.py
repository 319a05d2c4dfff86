"""Makes `python -m twinbed` the command line. It is loaded by name, as the Python API is."""

from importlib import import_module

if __name__ == "__main__":
    import_module("lab.cli.main").main()
