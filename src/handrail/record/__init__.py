"""A run's record: ``reading`` and ``run_record`` read it, by path; ``rows`` converts it to text.

``dropped`` says which steps a resume runs again, ``inbox`` which messages are new, ``status`` how a
run ended or what it waits for, ``view`` and ``live_view`` what people see.
"""
