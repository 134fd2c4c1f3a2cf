def average_length(notes):
    """The mean number of characters of the notes; 0 without notes."""
    if not notes:
        return 0
    return sum(len(note) for note in notes) / len(notes)
