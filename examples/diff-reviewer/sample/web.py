from report import average_length
from store import Store

store = Store("notes.db")


def overview(owner):
    notes = store.notes(owner)
    return {"notes": notes, "average": average_length(notes)}
