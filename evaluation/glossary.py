"""docs/glossary.md from the glossary's data file (experiments/glossary.toml)."""

from __future__ import annotations

from pathlib import Path

from experiments import glossary

PAGE = Path(__file__).parents[1] / "docs" / "glossary.md"

if __name__ == "__main__":
    PAGE.write_text(glossary.page(), "utf-8")
    print(f"{PAGE}: {len(glossary.load())} terms")
