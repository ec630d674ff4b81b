"""Tools for contributors to pgsched. They are not part of the package."""
