"""The chart's Grafana dashboards, as code: ``python -m charts.dashboards.generate``."""
