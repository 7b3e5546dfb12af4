"""Where chains are kept between calls: any Redis or Valkey, or one that the service starts."""
