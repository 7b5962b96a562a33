"""What an exported generator needs to make records: this folder, NumPy, and no other package."""
