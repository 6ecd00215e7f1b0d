"""What stands between a paid call and its provider: rate limits, circuit breakers, budgets."""
