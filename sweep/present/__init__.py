"""For people: results in Python, the answer on a terminal, the progress bar."""
