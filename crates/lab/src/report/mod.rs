//! The report: results drawn as one self-contained HTML page.
