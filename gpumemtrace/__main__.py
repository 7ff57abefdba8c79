"""``python -m gpumemtrace`` is the ``gpumemtrace`` command."""

from gpumemtrace.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
