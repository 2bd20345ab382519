"""A journal in one SQLite file: safe to kill at any instant, read by others while it is written.

``journal.SqliteJournal.append`` takes an event, ``rows.insert`` writes its row.
"""
