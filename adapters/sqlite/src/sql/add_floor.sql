INSERT INTO tag (tag, start, mode, step_policy, step, refill_policy, refill, grant_start, settled, watermark)
VALUES (?1, 1, 'buffered', 'fixed', 1, 'share-consumed', 10, 1, ?2, ?2)
ON CONFLICT (tag) DO UPDATE SET watermark = max(watermark, ?2), settled = max(settled, ?2), version = version + 1
