-- The spiders' own counters (Spider.stats), added up with every settled page.

ALTER TABLE jobs ADD COLUMN stats TEXT NOT NULL DEFAULT '{}';  -- JSON: name -> sum
