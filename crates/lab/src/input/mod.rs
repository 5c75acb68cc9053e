//! Inputs: captures and flow exports opened, recognised and streamed.
