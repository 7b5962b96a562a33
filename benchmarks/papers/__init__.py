"""Every table and figure of the papers as a row that is run by its name."""
