"""Data sets of images: files, folders, arrays, and the readers of public sets."""
