"""Private records and units: sealed, dealt, pretrained, queried and saved."""
