"""Every statement has its Python function here, one module for each aggregate."""
