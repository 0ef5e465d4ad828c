"""The report page: one self-contained HTML file about a run or a rollout file; its figures as PNG, SVG and CSV."""
