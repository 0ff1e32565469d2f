//! What users get: packages, examples, pages, and what others read of our ids.

mod embedding;
mod examples;
mod others;
mod pages;
mod publish;
mod release;
mod tidy;
