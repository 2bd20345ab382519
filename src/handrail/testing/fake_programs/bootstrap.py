"""The file that a fake program's Python runs: it calls ``main`` without the rest of handrail.

It puts empty packages in place of the enclosing ones, so that their ``__init__`` do not run. That
alone saves a tenth of a second, and works without site-packages.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # an import of this module must not replace the real packages
    folder = __file__
    for name in ("handrail.testing.fake_programs", "handrail.testing", "handrail"):
        folder = folder.rpartition("/")[0]
        package = type(sys)(name)
        package.__path__ = [folder]
        sys.modules[name] = package

    from handrail.testing.fake_programs.main import main

    main(sys.argv[1], sys.argv[2], sys.argv[3:])
