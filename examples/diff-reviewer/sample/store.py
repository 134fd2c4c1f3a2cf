import sqlite3


class Store:
    """The notes of all users, in one SQLite file."""

    def __init__(self, path):
        self.db = sqlite3.connect(path)
        self.db.execute("CREATE TABLE IF NOT EXISTS notes (owner TEXT, text TEXT)")

    def add(self, owner, text):
        self.db.execute("INSERT INTO notes VALUES (?, ?)", (owner, text))
        self.db.commit()

    def notes(self, owner):
        rows = self.db.execute("SELECT text FROM notes WHERE owner = ?", (owner,))
        return [text for (text,) in rows]
