"""What the engines' metrics say, by way of Prometheus."""
