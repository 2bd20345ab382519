"""The file that a fake program's Python is given: it runs ``main`` without the rest of handrail.

The packages around it are put in place empty, so that their ``__init__`` do not run: that alone is
faster by a tenth of a second, and works without site-packages.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # imported, it would put those packages in the place of the real ones
    folder = __file__
    for name in ("handrail.testing.fake_programs", "handrail.testing", "handrail"):
        folder = folder.rpartition("/")[0]
        package = type(sys)(name)
        package.__path__ = [folder]
        sys.modules[name] = package

    from handrail.testing.fake_programs.main import main

    main(sys.argv[1], sys.argv[2], sys.argv[3:])
