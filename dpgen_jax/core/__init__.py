"""Types, errors, configuration and the command line: what every part may use."""
