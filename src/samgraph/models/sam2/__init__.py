"""SAM 2 and SAM 2.1, in the order data flows: hiera, neck, prompts, decoder, memory."""
