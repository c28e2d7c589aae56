"""Images, videos and masks: reading, writing, resizing and drawing. No model is needed."""
