"""The panel of documents: uploads, jobs, removal."""
