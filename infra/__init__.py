"""Adapters to the outside: event stores, PostgreSQL, models, settings, telemetry."""
