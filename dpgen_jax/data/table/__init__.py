"""Tables: schemas, cells, files, and columns as features."""
