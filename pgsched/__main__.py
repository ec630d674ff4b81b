"""The `pgsched` program; `python -m pgsched` is the same."""

from pgsched import garbage


def main() -> None:
    """Run the command line of this process, to its exit."""
    garbage.begin()
    from pgsched import cli

    try:
        cli.main()
    finally:
        garbage.end()


if __name__ == "__main__":
    main()
