"""The same run with clients in other processes, each of which adds its own noise."""
