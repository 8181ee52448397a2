"""`python -m gossamer` is the `gossamer` command."""

from .cli import main

if __name__ == "__main__":
    main()
