"""Lets `python -m watchtower` be the same as the `watchtower` command."""

from watchtower.cli.main import main

if __name__ == "__main__":
    main()
