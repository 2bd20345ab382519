"""A run's record: ``reading`` and ``run_record`` read it, by path; ``rows`` has it as text.

``dropped`` says what of it a resume does again, ``inbox`` which messages are new, ``view`` and
``live_view`` what people see.
"""
