"""Types, errors, configuration and files, which every part may use."""
