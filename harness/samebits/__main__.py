"""`python -m samebits`: the command line, where no script is installed."""

from samebits.cli import main

if __name__ == "__main__":
    main()
