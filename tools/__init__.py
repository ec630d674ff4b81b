"""Tools for those who work on pgsched. They are not part of the package."""
