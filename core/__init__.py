"""The domain without frameworks: errors, texts, moments, knowledge and limits that every room shares."""
