"""Language servers: started when needed, kept warm, and believed no more than any stranger."""
