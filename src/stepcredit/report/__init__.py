"""The report page and figures."""
