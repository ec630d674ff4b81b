"""`python -m pgsched` is `pgsched`."""

from pgsched.cli import main

main()
