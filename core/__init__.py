"""The domain without frameworks: errors, texts, dates, knowledge and limits that all packages share."""
