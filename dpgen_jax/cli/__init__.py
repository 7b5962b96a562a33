"""The command line: flags to values, and lines to a terminal; nothing else imports the parser."""
