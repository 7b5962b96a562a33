"""The release: what it holds, how it is written and how it is shown."""
