"""What was answered before. It knows neither `gateway` nor `policies`."""
