//! Tables: flow records and packet stamps as Parquet files.
